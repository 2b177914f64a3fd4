#include "cli/common/job.h"

#include <stdio.h>

#include "cli/common/cli.h"

int zonal__cli_end_job(zonal__job *job, zonal_status status) {
    int result = status == ZONAL_OK         ? ZONAL__EXIT_OK
                 : status == ZONAL_ARGUMENT ? ZONAL__EXIT_USAGE
                                            : ZONAL__EXIT_FAILED;
    if (status != ZONAL_OK && zonal__job_speaks(job, status)) result = zonal__cli_failed();
    fflush(stdout); /* a launcher may end this process as soon as another has ended */
    zonal__job_close(job, status);
    return result;
}
