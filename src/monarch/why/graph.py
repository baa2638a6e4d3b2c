"""A graph of waits between numbers: its circles, and its ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def circles(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of two and more nodes, by Tarjan, and self-loops.

    All members of a group wait for each other; a self-loop waits for itself.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group: list[int] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1 or node in edges.get(node, ()):
                        found.append(group)
    return found


def chain(group: Sequence[int], edges: Mapping[int, Sequence[int]]) -> list[int]:
    """Find a short circle in a group of members that all wait for each other.

    It goes from the first node, always to the nearest.
    """
    members = set(group)
    start = min(group)
    came: dict[int, int] = {start: start}
    queue = [start]
    for node in queue:
        for target in edges.get(node, ()):
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if target in members and target not in came:
                came[target] = node
                queue.append(target)
    return list(group)


def those_who_wait(ends: Sequence[int], edges: Mapping[int, Sequence[int]]) -> set[int]:
    """Return the nodes from which a way leads to one of these ends, without the ends."""
    backwards: dict[int, list[int]] = {}
    for node, targets in edges.items():
        for target in targets:
            backwards.setdefault(target, []).append(node)
    return those_waited_for(ends, backwards) - set(ends)


def those_waited_for(starts: Sequence[int], edges: Mapping[int, Sequence[int]]) -> set[int]:
    """Return the nodes to which a way leads from one of these."""
    found: set[int] = set()
    queue = list(starts)
    for node in queue:
        for target in edges.get(node, ()):
            if target not in found:
                found.add(target)
                queue.append(target)
    return found
