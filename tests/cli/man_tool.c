/*
 * The manual page of a made-up command, whose help is a file:
 *
 *     man_tool HELP
 */
#include <stdio.h>

#include "cli/common/man.h"

static const char *help;

static int print_help(int argc, char **argv) {
    FILE *file = fopen(help, "r");
    int c;
    (void)argc, (void)argv;
    if (!file) return 1;
    while ((c = getc(file)) != EOF) putchar(c);
    fclose(file);
    return 0;
}

int main(int argc, char **argv) {
    static const zonal__cli_part commands[] = {{"made-up", "it's .only a test", print_help, NULL},
                                               {0}};
    static const zonal__cli_part program = {"zonal", "a program", print_help, commands};
    char *words[] = {"man", "made-up", NULL};
    if (argc != 2) return 2;
    help = argv[1];
    return zonal__cli_man(&program, 2, words);
}
