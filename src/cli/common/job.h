/*
 * Commands that may run on several ranks.
 *
 *     if (zonal__job_open(&s.job, &job) != ZONAL_OK) return zonal__cli_failed();
 *     return zonal__cli_end_job(job, run(&s, job));
 */
#ifndef ZONAL_CLI_COMMON_JOB_H
#define ZONAL_CLI_COMMON_JOB_H

#include "dist/job.h"

/* Ends the job with the status of its work, which zonal__job_all has shared: one rank prints the
 * sentence of a failure. Returns the exit status. */
int zonal__cli_end_job(zonal__job *job, zonal_status status);

#endif
