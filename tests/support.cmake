# What tests and benchmarks share. It goes through millions of numbers, so it is optimised wherever the tests are not.
add_library(test_support STATIC "${CMAKE_CURRENT_LIST_DIR}/support.cpp")
target_compile_options(test_support PRIVATE -O2)
target_include_directories(test_support PRIVATE "${keel_SOURCE_DIR}")
target_link_libraries(test_support PUBLIC keel::runtime PRIVATE keel_flags)
