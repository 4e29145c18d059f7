# Read by CTest after the tests are discovered: gives single cases further labels.
#   quick     the first case of each test suite: one test of each kind (scripts/test --quick)
#   sanitize  what the asan and tsan builds run: suites about memory, threads, files and whole runs, and all of quick
#   avx2      what runs once more with oneDNN capped to AVX2
#   slow      suites named Slow...: minutes rather than seconds, only on request
cmake_policy(VERSION 3.22...3.25)
set(sanitized "^(Alarm|Allocator|Storage|Tensor|Parallel|Context|AtomicF|FileLock|InputFile|LineIndex|Csv|Jsonl|Map$|MappedFile|Safetensors|Load|AsyncSave|MemoryCopies|MemoryFolder|RunMemory|Export|Prefetch|Engine|Backward|Checkpoint|Attention|Trainer|Train|BadInput|Collectives|Communicator|Disagreement|Failure|OrderedSum|Zero$|Hybrid|Naive|TensorParts|Compare|Trace|Staged|Offload|CBorder|Targets/Corpus|Waker|Accumulation|WordMemory|TrackersOfARun|TrackerFiles|CommandTracker|MlflowServer)")
set(matrix_suites "Matmul|Attention|Gpt|Onednn|OneDnn|Parity")

set(suites_seen)
foreach(layer IN ITEMS runtime config kernels autograd nn models optim comm lab parallel tokenizers data tasks checkpoint trainer trackers learn fuzz capi cli lies emulation cuda nccl)
  foreach(case IN LISTS test_${layer}_TESTS)
    string(REGEX MATCH "^[^.]*" suite "${case}")
    if(suite MATCHES "^Slow")
      set_tests_properties("${case}" PROPERTIES LABELS slow TIMEOUT 3600)
      continue()
    endif()
    if(NOT suite IN_LIST suites_seen)
      list(APPEND suites_seen "${suite}")
      set_tests_properties("${case}" PROPERTIES LABELS "quick;sanitize")
    elseif(layer MATCHES "^(emulation|cuda|nccl)$")
      # One order of threads is enough there, and one way between devices: all take minutes.
      if(NOT case MATCHES "/(reverse|shuffled|StagedDevices)|TwentySteps")
        set_tests_properties("${case}" PROPERTIES LABELS sanitize)
      endif()
    elseif(suite MATCHES "${sanitized}" AND NOT case MATCHES "LearnsToAdd")  # minutes there, and one step shows it all
      set_tests_properties("${case}" PROPERTIES LABELS sanitize)
    endif()
    if(suite MATCHES "${matrix_suites}" AND NOT layer MATCHES "^(cuda|nccl)$")
      set_tests_properties("${case}" PROPERTIES LABELS avx2)
    endif()
  endforeach()
endforeach()
# Programs whose cases need no other label.
foreach(case IN LISTS test_fault_laws_TESTS)
  if(case MATCHES "^Slow")
    set_tests_properties("${case}" PROPERTIES LABELS slow TIMEOUT 3600)
  endif()
endforeach()
