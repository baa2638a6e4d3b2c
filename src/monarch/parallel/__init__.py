"""Ways to train one network on several meshes, built on distributed tensors: `pipelining`."""
