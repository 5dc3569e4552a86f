"""verigrad: policy gradients from rewards a program can verify."""
