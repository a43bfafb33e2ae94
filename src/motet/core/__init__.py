"""The kernel: what a federated program is. It knows no models, codecs, files or networks."""
