"""What failed, whose it was, who must hear of it. Pure: no socket, no thread, no clock.

`failure` is the record that travels; `ledger` is what each actor owns and which of its ranks have failed.
"""
