/* folder.h - the temporary folder of a suite: made before its tests, removed with all that is in it behind them. */
#ifndef WEFT_TESTS_FOLDER_H
#define WEFT_TESTS_FOLDER_H

/* For cmocka_run_group_tests. */
int folder_create(void **state);
int folder_remove(void **state);

const char *folder_path(void);

/* The path of a file in the folder; good until the eighth call after this one. */
const char *in_folder(const char *name);

/* Makes a file of the text and returns its path, as in_folder does. */
const char *write_text(const char *name, const char *text);

#endif
