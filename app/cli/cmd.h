/* cmd.h - the commands, each defined in cmd_<name>.c and listed in commands.c. */
#ifndef WEFT_CLI_CMD_H
#define WEFT_CLI_CMD_H

#include "cli.h"

extern const cli_command cli_cmd_run;
extern const cli_command cli_cmd_chat;
extern const cli_command cli_cmd_tokenize;
extern const cli_command cli_cmd_detokenize;
extern const cli_command cli_cmd_logits;
extern const cli_command cli_cmd_score;
extern const cli_command cli_cmd_info;
extern const cli_command cli_cmd_bench_gemm;
extern const cli_command cli_cmd_bench_matvec;
extern const cli_command cli_cmd_bench_ops;
extern const cli_command cli_cmd_bench_attention;
extern const cli_command cli_cmd_bench_llm;
extern const cli_command cli_cmd_bench_load;
extern const cli_command cli_cmd_models;
extern const cli_command cli_cmd_models_rm;
extern const cli_command cli_cmd_devices;
extern const cli_command cli_cmd_doctor;
extern const cli_command cli_cmd_sweep;
extern const cli_command cli_cmd_demo;
extern const cli_command cli_cmd_version;
extern const cli_command cli_cmd_help;

#endif
