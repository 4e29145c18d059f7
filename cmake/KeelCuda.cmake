# Whether and how CUDA is part of the build: KEEL_CUDA.
#
#   ON         nvcc compiles the kernels; the program uses a GPU where there is one
#   EMULATED   the host's compiler compiles the same files, and the processor runs them as the device emulated:0
#   OFF        the processor alone
#   AUTO       ON where an nvcc of CUDA 12 or later is found, else OFF
#
# Sets keel_cuda to ON, EMULATED or OFF. keel_cuda_sources() names the files that hold device code.
keel_choice(KEEL_CUDA "CUDA backend" AUTO AUTO ON OFF EMULATED)
# 80 travels as PTX, too, which the driver of a newer card compiles when the program starts.
set(KEEL_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "What nvcc compiles for, as CMAKE_CUDA_ARCHITECTURES")

# keel_nvcc_problem(RESULT): why KEEL_NVCC cannot compile the kernels; empty where it can.
function(keel_nvcc_problem result)
  set(problem "")
  if(NOT KEEL_NVCC)
    set(problem "there is no nvcc in PATH, /usr/local/cuda/bin or CUDA_HOME/bin")
  else()
    # Asked before CMake tries it: an nvcc that is too old fails there with words about the host's compiler.
    execute_process(COMMAND "${KEEL_NVCC}" --version OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
    if(failed OR NOT said MATCHES "release ([0-9]+\\.[0-9]+)")
      set(problem "${KEEL_NVCC} --version does not tell its release")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12)
      set(problem "${KEEL_NVCC} is of CUDA ${CMAKE_MATCH_1}, and keel needs 12 or later, whose nvcc knows C++20")
    endif()
  endif()
  set(${result} "${problem}" PARENT_SCOPE)
endfunction()

set(keel_cuda ${KEEL_CUDA})
if(KEEL_CUDA MATCHES "^(AUTO|ON)$")
  find_program(KEEL_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  keel_nvcc_problem(keel_without_cuda)
  if(NOT keel_without_cuda)
    set(keel_cuda ON)
  elseif(KEEL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KEEL_CUDA is ON, but ${keel_without_cuda}")
  else()
    set(keel_cuda OFF)
  endif()
endif()

if(keel_cuda STREQUAL "ON")
  set(CMAKE_CUDA_COMPILER "${KEEL_NVCC}")
  if(KEEL_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${KEEL_CCACHE}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${KEEL_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
  # CMake 3.25 does not know yet that nvcc 13 speaks C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # CUDA's libraries are in a folder of their own, where installed libraries and those who link them find them.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  # Kernels are known to the copy of CUDA's runtime library that the library which holds them was linked to, so all of
  # keel in a process must have the same one.
  if(BUILD_SHARED_LIBS)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    set(keel_cuda_runtime CUDA::cudart)
  else()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(keel_cuda_runtime CUDA::cudart_static)
  endif()
  find_package(CUDAToolkit REQUIRED)
  string(REPLACE ";" " and " keel_cuda_state "${KEEL_CUDA_ARCHITECTURES}")
  set(keel_cuda_state "compiled by nvcc ${CMAKE_CUDA_COMPILER_VERSION} (${KEEL_NVCC}) for ${keel_cuda_state}")
elseif(keel_cuda STREQUAL "EMULATED")
  set(keel_cuda_state "emulated (KEEL_CUDA=EMULATED)")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
    # It lacks what libstdc++'s <source_location> needs; the emulator says by it where a kernel went wrong.
    target_include_directories(keel_flags SYSTEM INTERFACE "${keel_SOURCE_DIR}/scripts/lib/clang14")
  endif()
elseif(keel_without_cuda)
  set(keel_cuda_state "not used: ${keel_without_cuda}")
else()
  keel_off(keel_cuda_state KEEL_CUDA)
endif()
keel_part(CUDA "${keel_cuda_state}" "training on NVIDIA GPUs")
if(keel_cuda STREQUAL "ON")
  include(KeelCudaLibraries)
endif()

# The file that asks which backend there is gets KEEL_EMULATED, or KEEL_GPU where nvcc compiled the kernels; neither in a
# build without CUDA. Only such files, and each is compiled alone: the others need not be compiled again when KEEL_CUDA
# changes (tests/build/objects_hold).
set(keel_cuda_definitions)
if(keel_cuda STREQUAL "EMULATED")
  set(keel_cuda_definitions KEEL_EMULATED)
elseif(keel_cuda STREQUAL "ON")
  set(keel_cuda_definitions KEEL_GPU)
  # Device arithmetic is fused where fma is written, as on the host. scripts/kernel-report reads this line, too.
  set(keel_device_flags --fmad=false --expt-relaxed-constexpr)
  target_compile_options(keel_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:${keel_device_flags};-Xcompiler=-Wall,-Wno-unknown-pragmas>")
endif()

# keel_cuda_sources(TARGET FILES...): files that know of CUDA; those that end in .cu hold device code and are read by
# nvcc or, as C++, by the host's compiler.
function(keel_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  get_target_property(linked ${target} LINK_LIBRARIES)
  if(keel_cuda STREQUAL "ON" AND NOT "${keel_cuda_runtime}" IN_LIST linked)
    target_link_libraries(${target} PRIVATE ${keel_cuda_runtime})
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_DEFINITIONS "${keel_cuda_definitions}"
    SKIP_UNITY_BUILD_INCLUSION ON)
  if(keel_cuda STREQUAL "EMULATED")
    set(kernels ${ARGN})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set(options "-xc++;$<$<CONFIG:Release>:-O1>")
    if(KEEL_SANITIZE STREQUAL "thread")
      list(APPEND options -O0)  # a third of the compile time; its tests run few kernels
    endif()
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}")
  endif()
endfunction()
