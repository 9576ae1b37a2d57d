"""A predicted run moment by moment: when each message was under way, and when each rank was at which tick.

`course` follows the run, `trace` writes it for Perfetto and Chrome, `picture` draws ranks over time.
"""
