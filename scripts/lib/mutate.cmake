# For scripts/mutate: compiles the layer that is changed without much optimisation, and each of its sources alone.
cmake_language(DEFER CALL set_target_properties keel_${KEEL_MUTATED} PROPERTIES UNITY_BUILD OFF)
cmake_language(DEFER CALL target_compile_options keel_${KEEL_MUTATED} PRIVATE -O1)
