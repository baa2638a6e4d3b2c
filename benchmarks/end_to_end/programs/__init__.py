"""Programs that rows start, as a user would write them: each says `first step` when that is done by
all ranks.
"""
