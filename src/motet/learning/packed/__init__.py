"""Many clients as one packed model: packed layers, persistent buffers, datasets on the device, CUDA graphs."""
