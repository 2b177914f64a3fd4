/*
 * The tables of an experiment: from records, with what the paper reports beside it.
 */
#ifndef ZONAL_REPRODUCE_TABLES_H
#define ZONAL_REPRODUCE_TABLES_H

#include "reproduce/matrix.h"
#include "reproduce/paper.h"

/* In percent. */
typedef struct zonal__result {
    double mean, std; /* std of the sample; NaN below two seeds, both NaN without a record */
    int64_t seeds;
    zonal__paper_value paper;
} zonal__result;

typedef struct zonal__result_table {
    const char *title;                        /* of its data set */
    int paper;                                /* the number of the paper's table; 0: it has none */
    int64_t records;                          /* behind it */
    int64_t collapsed[ZONAL__MATRIX_METHODS]; /* of a row's runs */
    zonal__result at[ZONAL__MATRIX_METHODS][ZONAL__EXPERIMENT_COLUMNS];
} zonal__result_table;

typedef struct zonal__result_tables {
    const zonal__experiment *experiment;
    const char *variant;
    int rows;
    char row[ZONAL__MATRIX_METHODS][ZONAL__CELL_METHOD];
    int count;
    zonal__result_table table[ZONAL__MATRIX_SETS + 1];
    char commits[512], devices[512]; /* of the records behind them, with commas between them */
} zonal__result_tables;

/* The tables of one variant. Rows are the matrix's methods and, with "more", others that the
 * records have; a data set without records is left out where the paper does not have it. A mean is
 * over records that differ in nothing but the seed: where there are others, those like the last
 * one count, and a line in the log says what was left out. Release with zonal__free. */
zonal_status zonal__result_tables_make(const zonal__matrix *matrix, const char *variant,
                                       const zonal__records *records, int more,
                                       zonal__result_tables **out);

#endif
