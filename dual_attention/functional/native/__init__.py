"""Operations in C for the processor at hand, built when they are first needed; every one has an equal in PyTorch."""
