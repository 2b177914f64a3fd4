/*
 * The gradient of the weights of a convolution or linear layer:
 *
 *     dweight[k][patch element] = sum over pixels m of dy[m][k] patch(m)[element]
 *
 * a product of dy, transposed, and the gathered patches, whose long side is summed over. A turn
 * owns a block of output channels and a group of the patch's lines, and goes through the pixels in
 * blocks. Where the weights are so few that this leaves too few turns, the pixels are divided into
 * parts as well; their sums are kept apart and added in the order of the parts.
 */
#include "backend/backend.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/training/nn_amx.h"
#include "backend/cpu/training/nn_product.h"
#include "core/memory.h"

enum {
    GATHER_BYTES = 1 << 19,
    MOST_ROWS = 512,
    GROUP_WIDTH = 192, /* elements of a patch that a group has at least */
    COLUMNS = 128,     /* output channels of a turn */
    SUM_BLOCK = 8192   /* weights of a turn that adds the parts */
};

typedef struct gradient_run {
    const zonal__product_layer *layer;
    const zonal__layer_arrays *arrays;
} gradient_run;

/* What a turn works on. */
typedef struct gradient_turn {
    int d0, d1;             /* lines of the patch */
    int64_t first, cols;    /* output channels */
    int64_t width;          /* elements of a patch that are gathered */
    int64_t row, end, part; /* pixels */
} gradient_turn;

static int64_t line_width(const zonal__product_layer *layer) {
    return (int64_t)layer->forward.grid->cols * layer->forward.source_channels;
}

static int64_t weights_of(const zonal__product_layer *layer) {
    return zonal__grid_depth(&layer->forward, layer->forward.grid) * layer->base.out_channels;
}

/* A row of dy, transposed, for the tiles: as long as a block of pixels, and a line more so that
 * rows begin on different lines of the cache. */
static int64_t transposed_width(const zonal__gradient_plan *plan) {
    return plan->rows + ZONAL__AMX_SIDE;
}

static void plan_gradient(zonal__product_layer *layer) {
    zonal__gradient_plan *plan = &layer->gradient;
    int64_t size = layer->way == ZONAL__WAY_AMX ? 2 : 4, line = line_width(layer), turns;
    int64_t pixels = zonal__grid_pixels(&layer->forward, layer->forward.grid);
    int lines = layer->forward.grid->rows;
    plan->lines = (int)zonal__least(lines, zonal__ceil_div(GROUP_WIDTH, line));
    plan->groups = (int)zonal__ceil_div(lines, plan->lines);
    plan->cols = zonal__least(COLUMNS, layer->base.out_channels);
    plan->col_blocks = zonal__ceil_div(layer->base.out_channels, plan->cols);
    plan->rows = GATHER_BYTES / (size * plan->lines * line) / ZONAL__AMX_SIDE * ZONAL__AMX_SIDE;
    plan->rows = zonal__most(ZONAL__AMX_SIDE, zonal__least(plan->rows, MOST_ROWS));
    turns = plan->groups * plan->col_blocks;
    plan->parts = zonal__least(zonal__ceil_div(ZONAL__PRODUCT_TURNS, turns),
                               zonal__ceil_div(pixels, plan->rows));
    plan->part_rows =
        zonal__ceil_div(zonal__ceil_div(pixels, plan->parts), plan->rows) * plan->rows;
    plan->parts = zonal__ceil_div(pixels, plan->part_rows);
}

int64_t zonal__gradient_prepare(zonal__product_layer *layer) {
    zonal__gradient_plan *plan = &layer->gradient;
    zonal__product_bytes *bytes = &layer->bytes;
    int64_t width, cols;
    plan_gradient(layer);
    width = zonal__amx_round_up(plan->lines * line_width(layer));
    cols = zonal__amx_round_up(plan->cols);
    if (layer->way == ZONAL__WAY_AMX) {
        zonal__want_bytes(&bytes->patches, plan->rows + 2, width, sizeof(uint16_t));
        zonal__want_bytes(&bytes->gradient, cols, transposed_width(plan), sizeof(uint16_t));
    } else {
        zonal__want_bytes(&bytes->patches, plan->rows, width, sizeof(float));
        if (zonal__is_bf16(&layer->base))
            zonal__want_bytes(&bytes->gradient, plan->rows, cols, sizeof(float));
    }
    zonal__want_bytes(&bytes->result, cols, width, sizeof(float));
    if (plan->parts > 1)
        zonal__want_bytes(&bytes->sums, plan->parts, weights_of(layer), sizeof(float));
    return plan->parts * plan->groups * plan->col_blocks;
}

/* ---- by tiles -------------------------------------------------------------------------------- */

/* out[k][m] = dy[m][k], zero for missing k and m; "rows" a multiple of the tiles' side. Two pixels
 * at a time, as they lie side by side in the result. */
ZONAL__CLONES static void transpose(int64_t count, int64_t rows, int64_t cols, const uint16_t *dy,
                                    int64_t ld, int64_t width, uint16_t *out) {
    int64_t even = count / 2 * 2;
    for (int64_t block = 0; block < rows; block += ZONAL__AMX_SIDE)
        for (int64_t k = 0; k < cols; k++) {
            uint16_t *to = out + k * width + block;
            int64_t pairs = zonal__least(even - block, ZONAL__AMX_SIDE);
            for (int64_t m = 0; m < pairs; m += 2) {
                const uint16_t *from = dy + (block + m) * ld + k;
                uint32_t two = from[0] | (uint32_t)from[ld] << 16;
                memcpy(to + m, &two, sizeof two);
            }
            for (int64_t m = zonal__most(pairs, 0); m < ZONAL__AMX_SIDE; m++)
                to[m] = block + m < count ? dy[(block + m) * ld + k] : 0;
        }
}

/* Two rows of patches into the panels of the second factor. */
ZONAL__CLONES static void interleave(int64_t width, int64_t rows, const uint16_t *restrict even,
                                     const uint16_t *restrict odd, uint16_t *restrict out) {
    for (int64_t p = 0; p < width; p += ZONAL__AMX_SIDE)
        for (int64_t j = 0; j < ZONAL__AMX_SIDE; j++) {
            out[p * rows + 2 * j] = even[p + j];
            out[p * rows + 2 * j + 1] = odd[p + j];
        }
}

static void add_block_by_tiles(const gradient_run *run, const gradient_turn *turn, int64_t row,
                               int64_t count, const zonal__product_scratch *scratch) {
    const zonal__product_layer *layer = run->layer;
    const zonal__gradient_plan *plan = &layer->gradient;
    int64_t width = zonal__amx_round_up(turn->width), rows = zonal__amx_round_up(count);
    int64_t channels = layer->base.out_channels, long_row = transposed_width(plan);
    uint16_t *even = scratch->patches, *odd = even + width, *panels = odd + width;
    for (int64_t m = 0; m < rows; m += 2) {
        for (int64_t i = 0; i < 2; i++) {
            uint16_t *line = i ? odd : even;
            if (m + i < count)
                zonal__patch_gather(&layer->forward, layer->forward.grid, run->arrays->x,
                                    ZONAL__COPY_BF16, row + m + i, turn->d0, turn->d1, line);
            else
                memset(line, 0, (size_t)width * sizeof *line);
        }
        interleave(width, rows, even, odd, panels + m * ZONAL__AMX_SIDE);
    }
    transpose(count, rows, turn->cols,
              (const uint16_t *)run->arrays->dy + row * channels + turn->first, channels, long_row,
              scratch->gradient);
    zonal__amx_multiply(zonal__amx_round_up(turn->cols), width, rows, scratch->gradient, long_row,
                        panels, 1, scratch->result, width);
}

/* ---- in fp32 --------------------------------------------------------------------------------- */

static void add_block(const gradient_run *run, const gradient_turn *turn, int64_t row,
                      int64_t count, const zonal__product_scratch *scratch) {
    const zonal__product_layer *layer = run->layer;
    int64_t channels = layer->base.out_channels;
    int bf16 = zonal__is_bf16(&layer->base);
    float *patches = scratch->patches, *widened = scratch->gradient;
    const float *dy = (const float *)run->arrays->dy + row * channels + turn->first;
    for (int64_t m = 0; m < count; m++)
        zonal__patch_gather(&layer->forward, layer->forward.grid, run->arrays->x,
                            bf16 ? ZONAL__WIDEN_BF16 : ZONAL__COPY_FP32, row + m, turn->d0,
                            turn->d1, patches + m * turn->width);
    if (bf16) {
        for (int64_t m = 0; m < count; m++)
            for (int64_t k = 0; k < turn->cols; k++)
                widened[m * turn->cols + k] =
                    zonal__load(run->arrays->dy, (row + m) * channels + turn->first + k, 1);
        dy = widened;
        channels = turn->cols;
    }
    layer->kernels->gemm(1, 0, turn->cols, turn->width, count, dy, channels, patches, turn->width,
                         1, scratch->result, zonal__amx_round_up(turn->width));
}

/* ---- turns ----------------------------------------------------------------------------------- */

static gradient_turn turn_of(const zonal__product_layer *layer, int64_t number) {
    const zonal__gradient_plan *plan = &layer->gradient;
    const zonal__patch_grid *grid = layer->forward.grid;
    int64_t block = number % plan->col_blocks, group = number / plan->col_blocks % plan->groups;
    gradient_turn turn = {.part = number / plan->col_blocks / plan->groups};
    turn.d0 = (int)group * plan->lines;
    turn.d1 = (int)zonal__least(turn.d0 + plan->lines, grid->rows);
    turn.first = block * plan->cols;
    turn.cols = zonal__least(layer->base.out_channels - turn.first, plan->cols);
    turn.width = (turn.d1 - turn.d0) * line_width(layer);
    turn.row = turn.part * plan->part_rows;
    turn.end = zonal__least(turn.row + plan->part_rows, zonal__grid_pixels(&layer->forward, grid));
    return turn;
}

static void gradient_of_turn(void *context, int64_t number, int thread) {
    const gradient_run *run = context;
    const zonal__product_layer *layer = run->layer;
    const zonal__gradient_plan *plan = &layer->gradient;
    zonal__product_scratch own = zonal__product_scratch_of(layer, thread), *scratch = &own;
    gradient_turn turn = turn_of(layer, number);
    int64_t width = zonal__amx_round_up(turn.width), cols = zonal__amx_round_up(turn.cols);
    int64_t depth = zonal__grid_depth(&layer->forward, layer->forward.grid);
    int whole = plan->parts == 1, add = whole && run->arrays->accumulate;
    float *out = whole ? run->arrays->dweight : layer->sums + turn.part * weights_of(layer);
    memset(scratch->result, 0, (size_t)(cols * width) * sizeof(float));
    for (int64_t row = turn.row; row < turn.end; row += plan->rows) {
        int64_t count = zonal__least(turn.end - row, plan->rows);
        if (layer->way == ZONAL__WAY_AMX)
            add_block_by_tiles(run, &turn, row, count, scratch);
        else
            add_block(run, &turn, row, count, scratch);
    }
    for (int64_t k = 0; k < turn.cols; k++) {
        float *to = out + (turn.first + k) * depth + turn.d0 * line_width(layer);
        for (int64_t i = 0; i < turn.width; i++)
            to[i] = (add ? to[i] : 0) + scratch->result[k * width + i];
    }
}

static void add_parts(void *context, int64_t number, int thread) {
    const gradient_run *run = context;
    const zonal__gradient_plan *plan = &run->layer->gradient;
    int64_t all = weights_of(run->layer), first = number * SUM_BLOCK;
    int64_t count = zonal__least(all - first, SUM_BLOCK);
    float *out = run->arrays->dweight + first;
    (void)thread;
    if (!run->arrays->accumulate) memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t p = 0; p < plan->parts; p++) {
        const float *part = run->layer->sums + p * all + first;
        for (int64_t i = 0; i < count; i++) out[i] += part[i];
    }
}

static void add_bias(void *context, int64_t k, int thread) {
    const gradient_run *run = context;
    const zonal__layer *layer = &run->layer->base;
    double sum = run->arrays->accumulate ? (double)run->arrays->dbias[k] : 0;
    (void)thread;
    for (int64_t n = 0; n < layer->spec.n; n++)
        sum += (double)zonal__load(run->arrays->dy, n * layer->out_channels + k,
                                   zonal__is_bf16(layer));
    run->arrays->dbias[k] = (float)sum;
}

void zonal__gradient_run(zonal__product_layer *layer, const zonal__layer_arrays *arrays) {
    const zonal__gradient_plan *plan = &layer->gradient;
    gradient_run run = {layer, arrays};
    zonal__cpu_parallel(plan->parts * plan->groups * plan->col_blocks, gradient_of_turn, &run);
    if (plan->parts > 1)
        zonal__cpu_parallel(zonal__ceil_div(weights_of(layer), SUM_BLOCK), add_parts, &run);
    if (layer->base.spec.bias) zonal__cpu_parallel(layer->base.out_channels, add_bias, &run);
}
