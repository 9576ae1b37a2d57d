"""Starting a job on the hosts of an allocation, and knowing afterwards whether it did what it was started for.

`allocation` says which hosts there are, `layout` how many ranks run on each, `libraries` whose launcher starts them,
`commands` with which words; `checks` asks the hosts first, `running` watches over the job, and `verdict` reads its
record at the end. `started` is the other side: what a rank knows of how it was started.
"""
