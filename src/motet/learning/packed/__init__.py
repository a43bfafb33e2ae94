"""Many clients as one stacked model: packed layers, device-resident data, CUDA graphs."""
