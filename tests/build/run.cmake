# run(COMMAND ARGUMENTS...): in the folder BUILD; what it says is shown where it fails.
function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${BUILD}" RESULT_VARIABLE status
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()
