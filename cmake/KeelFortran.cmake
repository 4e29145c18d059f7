# Whether the module for Fortran is part of the build: KEEL_FORTRAN = AUTO (where there is a compiler), ON or OFF. Sets
# keel_fortran to ON or OFF.
keel_choice(KEEL_FORTRAN "The module for Fortran" AUTO AUTO ON OFF)

set(keel_fortran OFF)
if(NOT KEEL_FORTRAN STREQUAL "OFF")
  include(CheckLanguage)
  check_language(Fortran)
  if(CMAKE_Fortran_COMPILER)
    enable_language(Fortran)
    set(keel_fortran ON)
  elseif(KEEL_FORTRAN STREQUAL "ON")
    message(FATAL_ERROR "KEEL_FORTRAN is ON, but there is no compiler for Fortran (Debian: gfortran)")
  endif()
endif()

if(keel_fortran)
  message(STATUS "Fortran: ${CMAKE_Fortran_COMPILER}")
elseif(KEEL_FORTRAN STREQUAL "AUTO")
  message(STATUS "Fortran: no module, as there is no compiler (Debian: gfortran)")
else()
  message(STATUS "Fortran: OFF")
endif()
