"""Monarch in notebooks: what they show of its objects (`html`), ``%monarch`` (`magics`), and a live
map of ranks (`rank_map`).

Nothing here is imported before a notebook asks for it.
"""
