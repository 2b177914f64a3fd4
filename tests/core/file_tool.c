/*
 * The files of training from a command line, for tests whose oracle is Python
 * (safetensors_test.py):
 *
 *     file_tool copy IN OUT CHECKSUM     reads a safetensors file and writes its tensors and notes
 *     file_tool floats IN OUT            all its tensors as floats, in the order of the data
 *     file_tool config IN                reads a configuration file and prints its dump
 *
 * A failure is the two lines "status NAME" and "sentence ..." and exit status 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/memory.h"
#include "core/safetensors.h"

static zonal_status copy(char **argument) {
    zonal__safetensors *in;
    zonal__safetensors_content content;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(argument[0], ZONAL__SAFETENSORS_ANY, &in));
    content = (zonal__safetensors_content){in->tensors,    in->count,         in->notes,
                                           in->note_count, atoi(argument[2]), 0};
    status = zonal__safetensors_write(argument[1], &content);
    zonal__safetensors_close(in);
    return status;
}

static zonal_status floats(char **argument) {
    FILE *out = fopen(argument[1], "wb");
    zonal__safetensors *in;
    zonal_status status = zonal__safetensors_open(argument[0], ZONAL__SAFETENSORS_ANY, &in);
    for (int64_t i = 0; status == ZONAL_OK && i < in->count; i++) {
        const zonal__safetensor *tensor = &in->tensors[i];
        float *values;
        status = ZONAL_NEW(&values, tensor->count, "the floats");
        if (status != ZONAL_OK) break;
        zonal__safetensors_floats(tensor, values);
        fwrite(values, sizeof *values, (size_t)tensor->count, out);
        zonal__free(values);
    }
    zonal__safetensors_close(in);
    fclose(out);
    return status;
}

/* ---- config ---------------------------------------------------------------------------------- */

typedef struct settings {
    int64_t whole, other;
    double number;
    zonal__scale scale;
    int flag;
    const char *text, *list;
} settings;

static zonal_status set_list(void *values, const zonal__option *option, const char *shown,
                             const char *text) {
    (void)option, (void)shown;
    ((settings *)values)->list = text;
    return ZONAL_OK;
}

static const zonal__option table[] = {
    {.name = "whole", .type = ZONAL__OPTION_INT, .target = offsetof(settings, whole)},
    {.name = "a-b-c", .type = ZONAL__OPTION_INT, .target = offsetof(settings, other)},
    {.name = "a-number", .type = ZONAL__OPTION_DOUBLE, .target = offsetof(settings, number)},
    {.name = "a-scale", .type = ZONAL__OPTION_SCALE, .target = offsetof(settings, scale)},
    {.name = "flag", .type = ZONAL__OPTION_FLAG, .target = offsetof(settings, flag)},
    {.name = "text", .type = ZONAL__OPTION_STRING, .target = offsetof(settings, text)},
    {.name = "a-list", .type = ZONAL__OPTION_CUSTOM, .set = set_list},
    {0}};

static zonal_status config(char **argument) {
    zonal__options options;
    settings s;
    zonal__config *file;
    char *text;
    zonal_status status;
    ZONAL_TRY(zonal__options_init(&options, table, &s));
    ZONAL_TRY(zonal__config_read(argument[0], &options, &file));
    status = zonal__config_dump(&options, &text);
    if (status == ZONAL_OK) fputs(text, stdout);
    zonal__free(text);
    zonal__config_destroy(file);
    return status;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        zonal_status (*run)(char **argument);
    } commands[] = {{"copy", 3, copy}, {"floats", 2, floats}, {"config", 1, config}};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (argc == 2 + commands[i].arguments && strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].run(argv + 2) == ZONAL_OK) return 0;
            printf("status %s\nsentence %s\n", zonal_status_name(zonal_last_error()->status),
                   zonal_last_error()->message);
            return 1;
        }
    fprintf(stderr, "file_tool: see the head of file_tool.c\n");
    return 2;
}
