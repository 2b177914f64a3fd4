/*
 * Commands that are made of parts: zonal data pack, zonal bench loss.
 */
#ifndef ZONAL_CLI_COMMON_PARTS_H
#define ZONAL_CLI_COMMON_PARTS_H

typedef struct zonal__cli_part zonal__cli_part;
struct zonal__cli_part {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the part's name */
    const zonal__cli_part *parts;      /* its own, ended by a name of NULL; NULL: none */
};

/* Runs the part that argv[1] names; "parts" ends with a name of NULL. --help lists them, and prints
 * "remark" below the list. */
int zonal__cli_run_part(const char *command, const zonal__cli_part *parts, const char *remark,
                        int argc, char **argv);

#endif
