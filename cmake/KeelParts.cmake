# What the build is made of: libraries that it needs, and parts that it may have. The summary at the end of configuring and
# `keel env` print what the parts said here.

# keel_package_of(RESULT PROOF): " (package libfmt-dev)", as this system calls what brings the header or program; empty
# where scripts/packages does not know.
function(keel_package_of result proof)
  execute_process(COMMAND "${keel_SOURCE_DIR}/scripts/lib/package_of" "${proof}" OUTPUT_VARIABLE package ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(package)
    set(package " (package ${package})")
  endif()
  set(${result} "${package}" PARENT_SCOPE)
endfunction()

# keel_part(NAME STATE BRINGS): an optional part of the build. STATE is what serves as it, such as the library's path, or
# begins with "not used: " and says why; then BRINGS is what keel lacks.
function(keel_part name state brings)
  string(REPLACE ";" "," state "${state}")
  set_property(GLOBAL APPEND PROPERTY KEEL_PARTS "${name}")
  set_property(GLOBAL PROPERTY "KEEL_STATE_OF_${name}" "${state}")
  set_property(GLOBAL PROPERTY "KEEL_BRINGS_${name}" "${brings}")
endfunction()

# keel_off(RESULT OPTION): the state of a part that its option leaves out.
macro(keel_off result option)
  set(${result} "not used: switched off (${option}=OFF)")
endmacro()

# keel_write_parts(FILE): the parts as an array in C++, which the program prints.
function(keel_write_parts file)
  get_property(parts GLOBAL PROPERTY KEEL_PARTS)
  set(rows "")
  foreach(name IN LISTS parts)
    get_property(state GLOBAL PROPERTY "KEEL_STATE_OF_${name}")
    get_property(brings GLOBAL PROPERTY "KEEL_BRINGS_${name}")
    string(APPEND rows "    {\"${name}\", \"${state}\", \"${brings}\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT
"#pragma once
// Generated when keel was configured.

namespace keel::cli {
inline constexpr BuildPart kParts[] = {
@rows@};
}
")
endfunction()

# keel_summary(): what is on, what is off and why.
function(keel_summary)
  set(libraries static)
  if(BUILD_SHARED_LIBS)
    set(libraries shared)
  endif()
  set(notes "${CMAKE_BUILD_TYPE}" "${libraries} libraries" "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER})"
    "CMake ${CMAKE_VERSION}" "${CMAKE_GENERATOR}")
  if(KEEL_CCACHE)
    list(APPEND notes "ccache")
  endif()
  if(KEEL_SANITIZE)
    list(APPEND notes "sanitizer ${KEEL_SANITIZE}")
  endif()
  list(JOIN notes ", " notes)
  message(STATUS "keel ${PROJECT_VERSION}: ${notes}")
  get_property(parts GLOBAL PROPERTY KEEL_PARTS)
  foreach(name IN LISTS parts)
    get_property(state GLOBAL PROPERTY "KEEL_STATE_OF_${name}")
    get_property(brings GLOBAL PROPERTY "KEEL_BRINGS_${name}")
    string(SUBSTRING "${name}:               " 0 15 head)
    if(state MATCHES "^not used: (.*)")
      message(STATUS "  off  ${head}${CMAKE_MATCH_1}; it would bring ${brings}")
    else()
      message(STATUS "  on   ${head}${state}")
    endif()
  endforeach()
endfunction()
