/* A deadline that holds whatever Python and MPI are doing: a thread of its own ends the process when it has passed. */
#ifndef DDL_EXPIRY_H
#define DDL_EXPIRY_H

/* Unless another call comes within `seconds`, write `text` (may be empty) to standard error and leave with `status`.
   Takes the place of an earlier deadline. Returns 0, or an errno when there can be no thread. */
int ddl_deadline_arm(double seconds, const char *text, int status);

/* There is no deadline any more. */
void ddl_deadline_disarm(void);

#endif
