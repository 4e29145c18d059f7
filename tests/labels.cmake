# Read by CTest after the tests are discovered: gives single cases further labels.
#   quick     the first case of each test suite, but for one that takes minutes: one test of each kind (scripts/test --quick)
#   sanitize  what the asan build runs: suites about memory, threads, files and whole runs, and a case of every other one
#   threads   what the tsan build runs: of those, what has threads that no other suite has
#   avx2      what runs once more with oneDNN capped to AVX2
#   slow      suites named Slow...: minutes rather than seconds, only on request
# Cases that stand in the file KEEL_LEFT_OUT, a line each, get neither sanitize nor threads: .ci/run takes turns with them.
cmake_policy(VERSION 3.22...3.25)
set(sanitized "^(Alarm|Allocator|Storage|Tensor|Parallel|Context|AtomicF|FileLock|InputFile|LineIndex|Csv|Jsonl|Map$|MappedFile|Safetensors|Load|AsyncSave|MemoryCopies|MemoryFolder|RunMemory|Export|Prefetch|Engine|Backward|Checkpoint|Attention|Trainer|Train|BadInput|Collectives|Communicator|Disagreement|Failure|OrderedSum|Zero$|Hybrid|Naive|TensorParts|Trace|Staged|Offload|CBorder|Targets/Corpus|Waker|Accumulation|WordMemory|TrackersOfARun|TrackerFiles|CommandTracker|MlflowServer)")
set(matrix_suites "Matmul|Attention|Gpt|Onednn|OneDnn|Parity")

# What takes a minute or more with asan, and goes through the same code many times: stages, precisions, seeds of the emulator,
# large references. Another case of its suite, or of the program, goes through it once.
set(minutes_there "LearnsToAdd|PlanCountsOf.IsWhatTheEngine|EveryOptimizer|InEveryStageAndPrecision|InEveryStageAndToEveryRank|InEveryStageAndAfterAResume|InEveryStageAndOrderOfWork|AtEveryThreadCount|ForEveryDrainSeed|NoOrderOfWork|EveryLayoutOfEveryArgument|OnDevice.*AloneAndTogether|CompressionLaws.*/Devices|StepsHaveTransformersLosses|Offload\\.(Transforms|Advances|Measures|Keeps.*InEightBits|Lbfgs)|DeviceCompressor.GoesOn|StagedCollectives.Train|ZeroMemory.IsThatOf|EveryCollective.GivesWhatAPlainReference|NodeMemory.GivesTheNumbers")

# Of the programs in which threads work beside each other: suites of one thread at a time, or of ranks that meet as those of
# Trainer, TrainingByRanks and Zero do. tsan has nothing new to see in them.
set(threads_of_others "^(BadInput|Compare|CheckpointDamage|CheckpointCommands|CheckpointList|RecordNames|Targets/Corpus|ZeroMemory|TensorSums|PackedRun|MaskedLanguageRun|OwnTask|LabelRuns|Tasks/LabelRun|BuffersInRuns|FineTuningRun|ManualTask|Teacher|LastRowsOfARun|EvaluateRun|RunPlan|DecoderSteps|EncoderSteps|ShardedOptimizers|CompressedRun|CMemory|ZeroBytes|Decoders/ModelStages|Combine)")

# Gives the case the labels, and `sanitize`, and `threads` where they are a suite's own.
macro(keel_sanitized)
  set(labels ${ARGN} sanitize)
  if(layer IN_LIST threaded AND NOT suite MATCHES "${threads_of_others}")
    list(APPEND labels threads)
  endif()
  set_tests_properties("${case}" PROPERTIES LABELS "${labels}")
endmacro()

set(left_out)
if(DEFINED ENV{KEEL_LEFT_OUT})
  file(STRINGS "$ENV{KEEL_LEFT_OUT}" left_out)
endif()

set(suites_seen)
set(suites_sanitized)
include("${CMAKE_CURRENT_LIST_DIR}/labelled.cmake")
foreach(layer IN LISTS labelled)
  foreach(case IN LISTS test_${layer}_TESTS)
    string(REGEX MATCH "^[^.]*" suite "${case}")
    if(suite MATCHES "^Slow")
      set_tests_properties("${case}" PROPERTIES LABELS slow TIMEOUT 3600)
      continue()
    endif()
    set(labels)
    if(NOT suite IN_LIST suites_seen AND NOT case MATCHES "ContinuesEveryOptimizer")
      list(APPEND suites_seen "${suite}")
      set(labels quick)
      set_tests_properties("${case}" PROPERTIES LABELS quick)
    endif()
    if(case MATCHES "${minutes_there}" OR case IN_LIST left_out)
      # It has its labels.
    elseif(NOT suite IN_LIST suites_sanitized)
      list(APPEND suites_sanitized "${suite}")
      keel_sanitized(${labels})
    elseif(layer MATCHES "^(emulation|cuda|nccl)$")
      # One order of threads is enough there, and one way between devices: all take minutes.
      if(NOT case MATCHES "/(reverse|shuffled|StagedDevices)|TwentySteps")
        keel_sanitized()
      endif()
    elseif(suite MATCHES "${sanitized}")
      keel_sanitized()
    endif()
    # What looks at clocks has a processor of its own.
    if(suite MATCHES "^(RunTime|StepTuning)$")
      set_tests_properties("${case}" PROPERTIES PROCESSORS 2)
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
