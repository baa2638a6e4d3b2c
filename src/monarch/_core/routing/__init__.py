"""The way of messages between hosts: routes, order, cast trees, the gateway of a host.

Pure: frames and events in, frames out. Addresses and frames come from `wire`, failure records from
`supervision`.

Read `route`, then `order`, `cast` with `casting`, and `gateway`, which uses them all.

Imports `supervision`, `wire`.
"""
