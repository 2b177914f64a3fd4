#include "cli/common/parts.h"

#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "core/text.h"

enum { MOST_PARTS = 8 };

static void print_overview(FILE *stream, const char *command, const zonal__cli_part *parts,
                           const char *remark) {
    fprintf(stream, "usage: zonal %s ", command);
    for (const zonal__cli_part *p = parts; p->name; p++)
        fprintf(stream, "%s%s", p == parts ? "" : "|", p->name);
    fputs(" [arguments] [options]\n\n", stream);
    for (const zonal__cli_part *p = parts; p->name; p++)
        fprintf(stream, "  %-10s %s\n", p->name, p->summary);
    fprintf(stream, "\n%s\"zonal %s COMMAND --help\" explains one of them.\n", remark, command);
}

int zonal__cli_run_part(const char *command, const zonal__cli_part *parts, const char *remark,
                        int argc, char **argv) {
    const char *names[MOST_PARTS + 1] = {0}, *near;
    if (argc < 2) {
        print_overview(stderr, command, parts, remark);
        return ZONAL__EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout, command, parts, remark);
        return ZONAL__EXIT_OK;
    }
    for (int i = 0; parts[i].name && i < MOST_PARTS; i++) {
        if (strcmp(parts[i].name, argv[1]) == 0) return parts[i].run(argc - 1, argv + 1);
        names[i] = parts[i].name;
    }
    near = zonal__text_nearest(argv[1], names);
    if (near)
        return zonal__cli_misused("zonal %s has no command %s; did you mean %s?", command, argv[1],
                                  near);
    return zonal__cli_misused("zonal %s has no command %s; \"zonal %s --help\" lists them", command,
                              argv[1], command);
}
