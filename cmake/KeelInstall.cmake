# `cmake --install` and the package that find_package(keel) reads.
include(CMakePackageConfigHelpers)
set(keel_package "${CMAKE_INSTALL_LIBDIR}/cmake/keel")
get_property(layers GLOBAL PROPERTY KEEL_LAYERS)

# Where a library that a static layer needs at link time comes from. Header-only ones are linked as
# $<BUILD_INTERFACE:...> and are not listed.
set(package_of_OpenMP::OpenMP_CXX OpenMP)
set(package_of_Threads::Threads Threads)
set(package_of_fmt::fmt fmt)
set(package_of_yaml-cpp yaml-cpp)
set(package_of_DNNL::dnnl dnnl)
set(package_of_MPI::MPI_C MPI)
foreach(library IN ITEMS cudart_static cublasLt)
  set(package_of_CUDA::${library} CUDAToolkit)
endforeach()

# For each layer: keel_<layer>_needs, its direct layers, and keel_<layer>_packages.
set(KEEL_LAYER_TABLE "set(keel_layers ${layers})\n")
foreach(layer IN LISTS layers)
  get_target_property(links keel_${layer} INTERFACE_LINK_LIBRARIES)
  set(needs)
  set(packages)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(link MATCHES "^\\$<BUILD_INTERFACE:" OR link STREQUAL "links-NOTFOUND" OR link STREQUAL "${CMAKE_DL_LIBS}")
      continue()
    elseif(link MATCHES "^keel::(.*)$")
      list(APPEND needs "${CMAKE_MATCH_1}")
    elseif(IS_ABSOLUTE "${link}")
      continue()  # a library file, exported by its path
    elseif(DEFINED package_of_${link})
      list(APPEND packages "${package_of_${link}}")
    else()
      message(FATAL_ERROR "keel_${layer} links ${link}: add its package to cmake/KeelInstall.cmake")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES packages)
  string(APPEND KEEL_LAYER_TABLE "set(keel_${layer}_needs ${needs})\nset(keel_${layer}_packages ${packages})\n")

  # A backend's own headers are no part of the interface.
  get_target_property(folder keel_${layer} KEEL_FOLDER)
  install(DIRECTORY "${CMAKE_SOURCE_DIR}/${folder}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/keel/${folder}"
    FILES_MATCHING PATTERN "*.h" PATTERN "cpu" EXCLUDE PATTERN "cuda" EXCLUDE
    PATTERN "emulation" EXCLUDE)
  install(TARGETS keel_${layer} EXPORT keelTargets)
endforeach()

install(EXPORT keelTargets NAMESPACE keel:: DESTINATION "${keel_package}")
configure_package_config_file(cmake/keelConfig.cmake.in "${CMAKE_BINARY_DIR}/keelConfig.cmake"
  INSTALL_DESTINATION "${keel_package}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/keelConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/keelConfig.cmake" "${CMAKE_BINARY_DIR}/keelConfigVersion.cmake"
  DESTINATION "${keel_package}")
