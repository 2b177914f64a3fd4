#include "cli/common/show_log.h"

#include "cli/common/cli.h"
#include "cli/common/progress.h"

static void say(void *context, const char *line) {
    (void)context;
    if (zonal__cli_said_before(line)) return;
    zonal__progress_interrupted();
    zonal__cli_say("%s", line);
}

void zonal__cli_show_log(int quiet) {
    zonal_set_log(quiet ? NULL : say, NULL);
}
