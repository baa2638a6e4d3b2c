"""Tensors on meshes.

What lives here now: `pickling`, how torch's tensors travel in the messages of actors. What will come: tensors that live on
all ranks at once, the streams and remote functions that compute with them, and what moves them between meshes. Importing
this package does not import torch; the module that does is loaded when a torch object first turns up in a message.

What may not live here: anything that actors without torch need. Read `pickling` next.
"""
