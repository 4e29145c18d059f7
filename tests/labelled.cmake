# The test programs, test_NAME, whose single cases labels.cmake labels.
set(labelled runtime config kernels autograd nn models optim comm lab parallel tokenizers data tasks checkpoint trainer
  trackers learn fuzz capi cli lies emulation cuda nccl)
# Those of them that tsan runs. The threads of kernels, which share out loops, are those of test_runtime.
set(threaded runtime comm parallel data checkpoint trainer trackers emulation nccl)
