/*
 * Tables of results beside the paper's, on stdout.
 */
#ifndef ZONAL_CLI_REPORT_RESULT_TABLE_H
#define ZONAL_CLI_REPORT_RESULT_TABLE_H

#include "reproduce/tables.h"

/* As text of at most 80 columns, with the paper's value and the difference below ours; or as
 * Markdown, with all three in one cell. The variant stands above, and where the records come from
 * below. */
void zonal__result_tables_print(const zonal__result_tables *tables, int markdown);

#endif
