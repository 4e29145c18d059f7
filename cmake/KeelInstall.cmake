# `cmake --install` and the package that find_package(keel) reads.
include(CMakePackageConfigHelpers)
set(keel_package "${CMAKE_INSTALL_LIBDIR}/cmake/keel")
file(RELATIVE_PATH to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
get_property(layers GLOBAL PROPERTY KEEL_LAYERS)

# Where a library that a static layer needs at link time comes from, and how a linker is told of it. Header-only ones are
# linked as $<BUILD_INTERFACE:...> and are not listed.
set(package_of_OpenMP::OpenMP_CXX OpenMP)
set(flags_of_OpenMP::OpenMP_CXX ${OpenMP_CXX_FLAGS})
set(package_of_Threads::Threads Threads)
set(flags_of_Threads::Threads -pthread)
set(package_of_fmt::fmt fmt)
set(flags_of_fmt::fmt -lfmt)
set(package_of_yaml-cpp yaml-cpp)
set(flags_of_yaml-cpp -lyaml-cpp)
set(package_of_utf8proc::utf8proc utf8proc)
set(flags_of_utf8proc::utf8proc -lutf8proc)
set(package_of_ZLIB::ZLIB ZLIB)
set(flags_of_ZLIB::ZLIB -lz)
set(package_of_MPI::MPI_C MPI)
set(flags_of_MPI::MPI_C ${MPI_C_LIBRARIES})
foreach(library IN ITEMS cudart cudart_static)
  set(package_of_CUDA::${library} CUDAToolkit)
  set(flags_of_CUDA::${library} ${CUDA_${library}_LIBRARY})
endforeach()

# For each layer: keel_<layer>_needs, its direct layers, and keel_<layer>_packages; and for those who build without CMake
# what `pkg-config keel-<layer>` reads.
set(KEEL_LAYER_TABLE "set(keel_layers ${layers})\n")
foreach(layer IN LISTS layers)
  get_target_property(links keel_${layer} INTERFACE_LINK_LIBRARIES)
  set(needs)
  set(packages)
  set(flags)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(link MATCHES "^\\$<BUILD_INTERFACE:" OR link STREQUAL "links-NOTFOUND")
      continue()
    elseif(link STREQUAL "${CMAKE_DL_LIBS}")
      list(APPEND flags -l${link})
    elseif(link MATCHES "^keel::(.*)$")
      list(APPEND needs "${CMAKE_MATCH_1}")
    elseif(IS_ABSOLUTE "${link}")
      list(APPEND flags "${link}")  # a library file, exported by its path
    elseif(DEFINED package_of_${link})
      list(APPEND packages "${package_of_${link}}")
      list(APPEND flags ${flags_of_${link}})
    else()
      message(FATAL_ERROR "keel_${layer} links ${link}: add its package to cmake/KeelInstall.cmake")
    endif()
  endforeach()
  if(layer STREQUAL "runtime")
    # Compilers of other languages than C++ link keel, too. Every layer needs this one, so these come last.
    list(APPEND flags -lstdc++ -lm)
  endif()
  list(REMOVE_DUPLICATES packages)
  string(APPEND KEEL_LAYER_TABLE "set(keel_${layer}_needs ${needs})\nset(keel_${layer}_packages ${packages})\n")

  set(requires ${needs})
  list(TRANSFORM requires PREPEND keel-)
  list(JOIN requires " " requires)
  list(JOIN flags " " flags)
  set(includes "-I\${includedir}")
  if(layer STREQUAL "fortran")
    string(APPEND includes " -I\${includedir}/keel/fortran")
  endif()
  get_target_property(definitions keel_${layer} INTERFACE_COMPILE_DEFINITIONS)
  if(definitions)
    list(TRANSFORM definitions PREPEND " -D" OUTPUT_VARIABLE definitions)
    list(JOIN definitions "" definitions)
    string(APPEND includes "${definitions}")
  endif()
  if(layer STREQUAL "mpi")
    foreach(folder IN LISTS MPI_C_INCLUDE_DIRS)
      string(APPEND includes " -I${folder}")
    endforeach()
  endif()
  configure_file(cmake/keel.pc.in "${keel_BINARY_DIR}/pkgconfig/keel-${layer}.pc" @ONLY)
  install(FILES "${keel_BINARY_DIR}/pkgconfig/keel-${layer}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

  # A backend's own headers are no part of the interface, nor are those that a layer keeps to itself.
  get_target_property(folder keel_${layer} KEEL_FOLDER)
  get_property(private GLOBAL PROPERTY "KEEL_PRIVATE_HEADERS_OF_${folder}")
  list(TRANSFORM private REPLACE "(.+)" "PATTERN;\\1;EXCLUDE")
  install(DIRECTORY "${keel_SOURCE_DIR}/${folder}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/keel/${folder}"
    FILES_MATCHING PATTERN "*.h" PATTERN "cpu" EXCLUDE PATTERN "cuda" EXCLUDE
    PATTERN "emulation" EXCLUDE ${private})
  install(TARGETS keel_${layer} EXPORT keelTargets)
endforeach()
install(TARGETS keel)
if(keel_fortran)
  install(DIRECTORY "${keel_BINARY_DIR}/fortran/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/keel/fortran"
    FILES_MATCHING PATTERN "*.mod")
endif()

add_custom_target(installed COMMENT "What cmake --install needs")
list(TRANSFORM layers PREPEND keel_ OUTPUT_VARIABLE installed)
add_dependencies(installed keel ${installed})

install(EXPORT keelTargets NAMESPACE keel:: DESTINATION "${keel_package}")
configure_package_config_file(cmake/keelConfig.cmake.in "${keel_BINARY_DIR}/keelConfig.cmake"
  INSTALL_DESTINATION "${keel_package}")
write_basic_package_version_file("${keel_BINARY_DIR}/keelConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
# The module file names the prefix, which only the installation knows.
install(CODE "
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  configure_file(\"${keel_SOURCE_DIR}/packaging/modulefile.in\" \"${keel_BINARY_DIR}/modulefile/${PROJECT_VERSION}\" @ONLY)
  file(INSTALL \"${keel_BINARY_DIR}/modulefile/${PROJECT_VERSION}\"
    DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/modulefiles/keel\")")
install(FILES "${keel_BINARY_DIR}/keelConfig.cmake" "${keel_BINARY_DIR}/keelConfigVersion.cmake"
  cmake/Findutf8proc.cmake DESTINATION "${keel_package}")
install(FILES LICENSE README.md CHANGELOG.md CITATION.cff DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}")

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall VERBATIM COMMENT "Removing what was installed from this folder"
    COMMAND "${CMAKE_COMMAND}" -D "MANIFEST=${keel_BINARY_DIR}/install_manifest.txt"
            -P "${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake")
endif()
