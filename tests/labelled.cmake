# The test programs, test_NAME, whose single cases labels.cmake labels.
set(labelled runtime config kernels autograd nn models optim comm lab parallel tokenizers data tasks checkpoint trainer
  trackers learn fuzz capi cli lies emulation cuda nccl)
