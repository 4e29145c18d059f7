# Whether MPI is part of the build: KEEL_MPI = AUTO (where it is found), ON or OFF. Sets keel_mpi to ON or OFF.
set(KEEL_MPI AUTO CACHE STRING "Ranks as processes of an MPI program: AUTO, ON or OFF")
set_property(CACHE KEEL_MPI PROPERTY STRINGS AUTO ON OFF)

if(NOT KEEL_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KEEL_MPI is '${KEEL_MPI}'; it must be AUTO, ON or OFF")
endif()

set(keel_mpi OFF)
if(NOT KEEL_MPI STREQUAL "OFF")
  enable_language(C)  # FindMPI looks only for the languages of a project
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    set(keel_mpi ON)
  elseif(KEEL_MPI STREQUAL "ON")
    message(FATAL_ERROR "KEEL_MPI is ON, but no MPI was found (Debian: libopenmpi-dev openmpi-bin)")
  endif()
endif()

if(keel_mpi)
  message(STATUS "MPI: ${MPI_C_LIBRARIES}")
elseif(KEEL_MPI STREQUAL "AUTO")
  message(STATUS "MPI: not found, so ranks are threads of one process (Debian: libopenmpi-dev openmpi-bin)")
else()
  message(STATUS "MPI: OFF")
endif()
