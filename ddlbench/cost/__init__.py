"""What an allreduce should take: links as measured, closed forms, lower bounds."""
