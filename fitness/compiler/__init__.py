"""What `fitness.compile` is made of: NVRTC, the cubin and PTX readers, diagnostics, includes, the cache."""
