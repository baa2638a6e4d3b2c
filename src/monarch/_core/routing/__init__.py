"""How messages find their way between hosts: routes, order across paths, cast trees, and the
gateway of a host.

Pure: frames and events in, frames out. Addresses and frames come from `wire`, failure records from
`supervision`.
"""
