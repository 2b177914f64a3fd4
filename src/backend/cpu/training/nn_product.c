/*
 * Convolution and linear layers on the host's threads: y and dx as matrix products of gathered
 * patches and weights. A turn gathers the patches of a block of pixels, small enough
 * for the cache, multiplies them by the weights and writes the pixels of the target.
 *
 * In fp32 a patch and the weights are floats and the product is that of kernels.h, whose second
 * factor, the weights, is packed once for all turns. In bf16 they stay bf16 and go through the
 * tiles of AMX where the processor has them; elsewhere they are widened and treated like floats.
 * Sums are in fp32.
 *
 * No library's product is used: oneDNN's, which packs the weights in every turn, makes a step of a
 * ResNet-18 some percent slower (results/training-cpu.md), and while it lasts oneDNN 2.6 keeps the
 * stack pointer in a block of the heap, where a signal that arrives overwrites what lies below.
 */
#include "backend/cpu/training/nn_product.h"

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/training/nn_amx.h"
#include "core/memory.h"

enum { PATCHES = 1 << 18, MOST_ROWS = 256 }; /* elements gathered at a time */

static _Atomic int way_limit = ZONAL__WAY_AMX;

static zonal__product_way way_of(int bf16) {
    int limit = atomic_load(&way_limit);
    if (bf16 && limit >= ZONAL__WAY_AMX && zonal__amx_usable()) return ZONAL__WAY_AMX;
    return ZONAL__WAY_PLAIN;
}

zonal__product_way zonal__product_limit(zonal__product_way way) {
    atomic_store(&way_limit, way);
    return way_of(1);
}

/* ---- which pixels a pixel is made of, and their gathering (nn_product.h has the formulas) ---- */

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

/* ---- one direction --------------------------------------------------------------------------- */

/* The product of one grid, as the turns see it. */
typedef struct product_run {
    const zonal__product_layer *layer;
    const zonal__patches *patches;
    const zonal__patch_grid *grid;
    int back;
    const void *source, *weight;
    const float *bias; /* NULL: none */
    void *target;
    int64_t pixels, depth, width; /* width: of a gathered row, in elements */
    int64_t rows, cols;           /* of a turn */
    int64_t col_blocks;
} product_run;

/* A gathered row of a product by tiles is filled up with zeros, and rows begin on different lines
 * of the cache. */
static int64_t row_width(const zonal__product_layer *layer, int64_t depth) {
    return layer->way == ZONAL__WAY_AMX ? zonal__amx_round_up(depth) + ZONAL__AMX_SIDE : depth;
}

static void plan_grid(const zonal__product_layer *layer, const zonal__patches *patches,
                      const zonal__patch_grid *grid, product_run *run) {
    int64_t columns = patches->target_channels, blocks;
    run->layer = layer;
    run->patches = patches;
    run->grid = grid;
    run->pixels = zonal__grid_pixels(patches, grid);
    run->depth = zonal__grid_depth(patches, grid);
    run->width = row_width(layer, run->depth);
    run->rows = PATCHES / (run->width + 1) / ZONAL__AMX_SIDE * ZONAL__AMX_SIDE;
    run->rows = zonal__most(ZONAL__AMX_SIDE, zonal__least(run->rows, MOST_ROWS));
    blocks = zonal__ceil_div(run->pixels, run->rows);
    run->cols = columns / zonal__ceil_div(ZONAL__PRODUCT_TURNS, blocks);
    run->cols = zonal__least(zonal__amx_round_up(zonal__most(run->cols, 1)), columns);
    run->col_blocks = zonal__ceil_div(columns, run->cols);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Where the weights of a patch position begin, for source channel 0 and column 0. */
static int64_t weight_at(const product_run *run, int64_t position) {
    const zonal__layer_spec *spec = &run->layer->base.spec;
    int64_t r = run->grid->r + run->patches->turn * (position / run->grid->cols);
    int64_t s = run->grid->s + run->patches->turn * (position % run->grid->cols);
    return (r * spec->kernel + s) * spec->channels;
}

/* From one output channel k to the next; input channels lie side by side. */
static int64_t output_step(const product_run *run) {
    const zonal__layer_spec *spec = &run->layer->base.spec;
    return (int64_t)spec->kernel * spec->kernel * spec->channels;
}

ZONAL__CLONES static void pack_line(int64_t count, const uint16_t *restrict from, int64_t step,
                                    uint16_t *restrict out) {
    if (step == 1)
        for (int64_t j = 0; j < count; j++) out[2 * j] = from[j];
    else
        for (int64_t j = 0; j < count; j++) out[2 * j] = from[j * step];
}

/* The panel's columns of one patch position, source channels p to p + channels - 1, for the tiles.
 */
static void pack_for_tiles(const product_run *run, const uint16_t *from, int64_t count, int64_t p,
                           uint16_t *out) {
    int64_t row_step = run->back ? output_step(run) : 1, step = run->back ? 1 : output_step(run);
    for (int64_t c = 0; c < run->patches->source_channels; c++, p++)
        pack_line(count, from + c * row_step, step, out + p / 2 * (2 * ZONAL__AMX_SIDE) + p % 2);
}

/* The same for the product of floats; what is bf16 is widened. */
static void pack_floats(const product_run *run, int64_t at, int64_t count, float *out) {
    const zonal__cpu_kernels *kernels = run->layer->kernels;
    int64_t row_step = run->back ? output_step(run) : 1, step = run->back ? 1 : output_step(run);
    int64_t channels = run->patches->source_channels;
    if (!zonal__is_bf16(&run->layer->base)) {
        kernels->gemm_pack(channels, count, (const float *)run->weight + at, row_step, step, out);
        return;
    }
    for (int64_t c = 0; c < channels; c++)
        for (int64_t j = 0; j < kernels->gemm_cols; j++)
            *out++ = j < count ? zonal__load(run->weight, at + c * row_step + j * step, 1) : 0;
}

static int64_t panel_cols(const zonal__product_layer *layer) {
    return layer->way == ZONAL__WAY_AMX ? ZONAL__AMX_SIDE : layer->kernels->gemm_cols;
}

/* Rows of a panel. */
static int64_t panel_depth(const zonal__product_layer *layer, int64_t depth) {
    return layer->way == ZONAL__WAY_AMX ? zonal__amx_round_up(depth) : depth;
}

static void pack_panel(void *context, int64_t panel, int thread) {
    const product_run *run = context;
    int64_t depth = panel_depth(run->layer, run->depth), cols = panel_cols(run->layer);
    int64_t first = panel * cols, count = zonal__least(run->patches->target_channels - first, cols);
    int64_t positions = (int64_t)run->grid->rows * run->grid->cols;
    int64_t channels = run->patches->source_channels, step = run->back ? 1 : output_step(run);
    uint16_t *tiles = (uint16_t *)run->layer->packed + first * depth;
    float *floats = (float *)run->layer->packed + first * depth;
    int by_tiles = run->layer->way == ZONAL__WAY_AMX;
    (void)thread;
    if (by_tiles && (count < cols || run->depth < depth))
        memset(tiles, 0, (size_t)(depth * cols) * sizeof *tiles);
    for (int64_t position = 0; position < positions; position++) {
        int64_t at = weight_at(run, position) + first * step;
        if (by_tiles)
            pack_for_tiles(run, (const uint16_t *)run->weight + at, count, position * channels,
                           tiles);
        else
            pack_floats(run, at, count, floats + position * channels * cols);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static zonal__patch_copy copy_of(const zonal__product_layer *layer) {
    if (!zonal__is_bf16(&layer->base)) return ZONAL__COPY_FP32;
    return layer->way == ZONAL__WAY_AMX ? ZONAL__COPY_BF16 : ZONAL__WIDEN_BF16;
}

static void gather_rows(const product_run *run, int64_t first, int64_t count, void *out) {
    zonal__patch_copy copy = copy_of(run->layer);
    size_t size = copy == ZONAL__COPY_BF16 ? 2 : 4;
    for (int64_t m = 0; m < count; m++) {
        char *row = (char *)out + (size_t)(m * run->width) * size;
        zonal__patch_gather(run->patches, run->grid, run->source, copy, first + m, 0,
                            run->grid->rows, row);
        memset(row + (size_t)run->depth * size, 0, (size_t)(run->width - run->depth) * size);
    }
}

/* In fp32 the patches of a 1 x 1 kernel without stride are the source itself. */
static int gathered_already(const product_run *run) {
    const zonal__layer_spec *spec = &run->layer->base.spec;
    return spec->kernel == 1 && spec->stride == 1 && copy_of(run->layer) == ZONAL__COPY_FP32;
}

/* result[rows][ld] = patches times the columns from "first" on */
static void multiply(const product_run *run, const void *patches, int64_t rows, int64_t first,
                     int64_t count, float *result, int64_t ld) {
    const zonal__product_layer *layer = run->layer;
    int64_t depth = panel_depth(layer, run->depth);
    if (layer->way == ZONAL__WAY_AMX)
        zonal__amx_multiply(zonal__amx_round_up(rows), zonal__amx_round_up(count), depth, patches,
                            run->width, (const uint16_t *)layer->packed + first * depth, 0, result,
                            ld);
    else
        layer->kernels->gemm_panels(rows, count, depth, patches, run->width, 1,
                                    (const float *)layer->packed + first * depth, 0, result, ld);
}

ZONAL__CLONES static void store_row(int64_t n, const float *result, const float *bias, int bf16,
                                    void *out) {
    if (bf16 && bias)
        for (int64_t c = 0; c < n; c++) zonal__store(out, c, 1, result[c] + bias[c]);
    else if (bf16)
        for (int64_t c = 0; c < n; c++) zonal__store(out, c, 1, result[c]);
    else if (bias)
        for (int64_t c = 0; c < n; c++) zonal__store(out, c, 0, result[c] + bias[c]);
    else if (result != out)
        for (int64_t c = 0; c < n; c++) zonal__store(out, c, 0, result[c]);
}

static void product_turn(void *context, int64_t turn, int thread) {
    const product_run *run = context;
    const zonal__layer *layer = &run->layer->base;
    zonal__product_scratch scratch = zonal__product_scratch_of(run->layer, thread);
    int64_t row = turn / run->col_blocks * run->rows, col = turn % run->col_blocks * run->cols;
    int64_t rows = zonal__least(run->pixels - row, run->rows);
    int64_t columns = run->patches->target_channels;
    int64_t cols = zonal__least(columns - col, run->cols), ld = zonal__amx_round_up(run->cols);
    int bf16 = zonal__is_bf16(layer), in_place = !bf16 && run->patches->step == 1;
    const void *patches = scratch.patches;
    float *result = scratch.result;
    if (in_place) {
        result = (float *)run->target + row * columns + col;
        ld = columns;
    }
    if (gathered_already(run))
        patches = (const float *)run->source + row * run->depth;
    else
        gather_rows(run, row, rows, scratch.patches);
    multiply(run, patches, rows, col, cols, result, ld);
    for (int64_t m = 0; m < rows; m++) {
        int64_t at = zonal__patch_target(run->patches, run->grid, row + m) + col;
        store_row(cols, result + m * ld, run->bias ? run->bias + col : NULL, bf16,
                  zonal__at_mutable(layer, run->target, at));
    }
}

/* Pixels that no tap reaches: of dx, where the stride is larger than the kernel. */
static void clear_turn(void *context, int64_t turn, int thread) {
    const product_run *run = context;
    const zonal__layer *layer = &run->layer->base;
    size_t bytes = (size_t)run->patches->target_channels * (zonal__is_bf16(layer) ? 2 : 4);
    (void)thread;
    for (int64_t m = turn * MOST_ROWS; m < run->pixels && m < (turn + 1) * MOST_ROWS; m++)
        memset(
            zonal__at_mutable(layer, run->target, zonal__patch_target(run->patches, run->grid, m)),
            0, bytes);
}

static void run_direction(const zonal__product_layer *layer, int back, const void *source,
                          const void *weight, const float *bias, void *target) {
    const zonal__patches *patches = back ? &layer->back : &layer->forward;
    for (int g = 0; g < patches->grids; g++) {
        product_run run = {
            .back = back, .source = source, .weight = weight, .bias = bias, .target = target};
        plan_grid(layer, patches, &patches->grid[g], &run);
        if (run.depth == 0) {
            zonal__cpu_parallel(zonal__ceil_div(run.pixels, MOST_ROWS), clear_turn, &run);
            continue;
        }
        zonal__cpu_parallel(zonal__ceil_div(patches->target_channels, panel_cols(layer)),
                            pack_panel, &run);
        zonal__cpu_parallel(zonal__ceil_div(run.pixels, run.rows) * run.col_blocks, product_turn,
                            &run);
    }
}

/* ---- the layer ------------------------------------------------------------------------------- */

static void release(zonal__layer *base) {
    zonal__product_layer *layer = (zonal__product_layer *)base;
    zonal__patches_fini(&layer->forward);
    zonal__patches_fini(&layer->back);
}

/* Raises layer->bytes to what the products of one direction need; returns the turns of its longest
 * loop. */
static int64_t prepare_direction(zonal__product_layer *layer, const zonal__patches *patches,
                                 int back) {
    zonal__product_bytes *bytes = &layer->bytes;
    size_t size = layer->way == ZONAL__WAY_AMX ? 2 : 4;
    int64_t most = zonal__ceil_div(patches->target_channels, panel_cols(layer));
    for (int g = 0; g < patches->grids; g++) {
        product_run run = {.back = back};
        plan_grid(layer, patches, &patches->grid[g], &run);
        if (!gathered_already(&run)) zonal__want_bytes(&bytes->patches, run.rows, run.width, size);
        if (zonal__is_bf16(&layer->base) || patches->step != 1)
            zonal__want_bytes(&bytes->result, run.rows, zonal__amx_round_up(run.cols), 4);
        zonal__want_bytes(&bytes->packed, zonal__amx_round_up(patches->target_channels),
                          zonal__amx_round_up(run.depth), size);
        most = zonal__most(most, zonal__ceil_div(run.pixels, run.rows) * run.col_blocks);
    }
    return most;
}

/* A thread without a turn would only want scratch. */
static zonal_status prepare(zonal__layer *base) {
    zonal__product_layer *layer = (zonal__product_layer *)base;
    int64_t turns;
    layer->way = way_of(zonal__is_bf16(base));
    layer->kernels = zonal__cpu_kernels_get(ZONAL_PRECISION_FP32);
    ZONAL_TRY(zonal__patches_forward(base, &layer->forward));
    turns = prepare_direction(layer, &layer->forward, 0);
    if (!base->spec.forward_only) {
        ZONAL_TRY(zonal__patches_backward(base, &layer->back));
        turns = zonal__most(turns, prepare_direction(layer, &layer->back, 1));
        turns = zonal__most(turns, zonal__gradient_prepare(layer));
    }
    base->threads = (int)zonal__least(base->threads, turns);
    return ZONAL_OK;
}

static size_t bytes_of_thread(const zonal__product_layer *layer) {
    return layer->bytes.patches + layer->bytes.gradient + layer->bytes.result;
}

static size_t scratch_bytes(const zonal__layer *base) {
    const zonal__product_layer *layer = (const zonal__product_layer *)base;
    return layer->bytes.packed + layer->bytes.sums + (size_t)base->threads * bytes_of_thread(layer);
}

static void lay_out_scratch(zonal__product_layer *layer, char *scratch) {
    layer->packed = scratch;
    layer->sums = (float *)(scratch + layer->bytes.packed);
    layer->threads = scratch + layer->bytes.packed + layer->bytes.sums;
}

zonal__product_scratch zonal__product_scratch_of(const zonal__product_layer *layer, int thread) {
    char *own = layer->threads + (size_t)thread * bytes_of_thread(layer);
    char *gradient = own + layer->bytes.patches;
    return (zonal__product_scratch){own, gradient, (float *)(gradient + layer->bytes.gradient)};
}

static zonal_status forward(zonal__layer *base, const zonal__layer_arrays *arrays, int training) {
    zonal__product_layer *layer = (zonal__product_layer *)base;
    (void)training;
    lay_out_scratch(layer, arrays->scratch);
    run_direction(layer, 0, arrays->x, arrays->weight, base->spec.bias ? arrays->bias : NULL,
                  arrays->y);
    return ZONAL_OK;
}

static zonal_status backward(zonal__layer *base, const zonal__layer_arrays *arrays) {
    zonal__product_layer *layer = (zonal__product_layer *)base;
    lay_out_scratch(layer, arrays->scratch);
    if (arrays->dx) run_direction(layer, 1, arrays->dy, arrays->weight, NULL, arrays->dx);
    if (arrays->dweight) zonal__gradient_run(layer, arrays);
    return ZONAL_OK;
}

const zonal__cpu_family zonal__layers_product = {.bytes = sizeof(zonal__product_layer),
                                                 .prepare = prepare,
                                                 .release = release,
                                                 .scratch = scratch_bytes,
                                                 .forward = forward,
                                                 .backward = backward};
