/* Which pixels a pixel is made of, and their gathering: nn_patches.h has the formulas. */
#include "backend/cpu/training/nn_patches.h"

#include "backend/cpu/clones.h"
#include "core/memory.h"

zonal_status zonal__patches_forward(const zonal__layer *layer, zonal__patches *patches) {
    const zonal__layer_spec *spec = &layer->spec;
    *patches = (zonal__patches){.images = spec->n,
                                .source_h = spec->h,
                                .source_w = spec->w,
                                .source_channels = spec->channels,
                                .target_h = layer->out_h,
                                .target_w = layer->out_w,
                                .target_channels = layer->out_channels,
                                .step = 1,
                                .move = spec->stride,
                                .turn = 1,
                                .grids = 1};
    ZONAL_TRY(ZONAL_NEW(&patches->grid, 1, "the patches of a layer"));
    patches->grid[0] = (zonal__patch_grid){.height = layer->out_h,
                                           .width = layer->out_w,
                                           .top = -spec->pad,
                                           .left = -spec->pad,
                                           .rows = spec->kernel,
                                           .cols = spec->kernel};
    return ZONAL_OK;
}

/* Along one side: the taps that pixels first, first + stride, ... see are those with (first + pad -
 * tap) divisible by the stride; "tap" is the last of them. */
static void backward_side(const zonal__layer_spec *spec, int first, int *count, int *tap,
                          int *begin) {
    int smallest = (first + spec->pad) % spec->stride;
    *count = smallest < spec->kernel ? (spec->kernel - 1 - smallest) / spec->stride + 1 : 0;
    *tap = smallest + (*count - 1) * spec->stride;
    *begin = (first + spec->pad - *tap) / spec->stride;
}

zonal_status zonal__patches_backward(const zonal__layer *layer, zonal__patches *patches) {
    const zonal__layer_spec *spec = &layer->spec;
    int down = spec->stride < spec->h ? spec->stride : spec->h;
    int across = spec->stride < spec->w ? spec->stride : spec->w;
    *patches = (zonal__patches){.images = spec->n,
                                .source_h = layer->out_h,
                                .source_w = layer->out_w,
                                .source_channels = layer->out_channels,
                                .target_h = spec->h,
                                .target_w = spec->w,
                                .target_channels = spec->channels,
                                .step = spec->stride,
                                .move = 1,
                                .turn = -spec->stride,
                                .grids = down * across};
    ZONAL_TRY(ZONAL_NEW(&patches->grid, patches->grids, "the patches of a layer"));
    for (int g = 0; g < patches->grids; g++) {
        zonal__patch_grid *grid = &patches->grid[g];
        grid->first_i = g / across;
        grid->first_j = g % across;
        grid->height = (spec->h - grid->first_i + spec->stride - 1) / spec->stride;
        grid->width = (spec->w - grid->first_j + spec->stride - 1) / spec->stride;
        backward_side(spec, grid->first_i, &grid->rows, &grid->r, &grid->top);
        backward_side(spec, grid->first_j, &grid->cols, &grid->s, &grid->left);
    }
    return ZONAL_OK;
}

void zonal__patches_fini(zonal__patches *patches) {
    zonal__free(patches->grid);
    patches->grid = NULL;
}

int64_t zonal__patch_target(const zonal__patches *patches, const zonal__patch_grid *grid,
                            int64_t m) {
    int64_t image = m / (grid->height * grid->width), pixel = m % (grid->height * grid->width);
    int64_t i = grid->first_i + patches->step * (pixel / grid->width);
    int64_t j = grid->first_j + patches->step * (pixel % grid->width);
    return ((image * patches->target_h + i) * patches->target_w + j) * patches->target_channels;
}

ZONAL__CLONES static void widen(int64_t n, const uint16_t *restrict x, float *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = zonal__bf16_to_float(x[i]);
}

/* One line of a patch: "count" elements of which those from "lo" to "hi" are inside. */
static void copy_line(zonal__patch_copy copy, int64_t count, int64_t lo, int64_t hi,
                      const char *source, char *out) {
    size_t size = copy == ZONAL__COPY_BF16 ? 2 : 4;
    if (lo > 0) memset(out, 0, (size_t)lo * size);
    if (copy == ZONAL__WIDEN_BF16)
        widen(hi - lo, (const uint16_t *)(const void *)source, (float *)(void *)out + lo);
    else
        memcpy(out + (size_t)lo * size, source, (size_t)(hi - lo) * size);
    if (hi < count) memset(out + (size_t)hi * size, 0, (size_t)(count - hi) * size);
}

void zonal__patch_gather(const zonal__patches *patches, const zonal__patch_grid *grid,
                         const void *source, zonal__patch_copy copy, int64_t m, int d0, int d1,
                         void *out) {
    int64_t image = m / (grid->height * grid->width), pixel = m % (grid->height * grid->width);
    int top = (int)(pixel / grid->width) * patches->move + grid->top;
    int left = (int)(pixel % grid->width) * patches->move + grid->left;
    int64_t channels = patches->source_channels, count = grid->cols * channels;
    size_t in_size = copy == ZONAL__COPY_FP32 ? 4 : 2, out_size = copy == ZONAL__COPY_BF16 ? 2 : 4;
    int lo = left < 0 ? -left : 0;
    int hi = patches->source_w - left < grid->cols ? patches->source_w - left : grid->cols;
    for (int d = d0; d < d1; d++) {
        char *line = (char *)out + (size_t)((d - d0) * count) * out_size;
        if (top + d < 0 || top + d >= patches->source_h || lo >= hi) {
            memset(line, 0, (size_t)count * out_size);
            continue;
        }
        int64_t at =
            ((image * patches->source_h + top + d) * patches->source_w + left + lo) * channels;
        copy_line(copy, count, lo * channels, hi * channels, (const char *)source + at * in_size,
                  line);
    }
}
