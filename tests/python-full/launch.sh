# launch.sh - launches slime's train.py with the commands and in the order of slime's own run scripts.
# SPDX-License-Identifier: Apache-2.0
#
#   bash launch.sh CHECKOUT STUBS INPUTS [OBSERVER]
#
# CHECKOUT is a checkout of slime, STUBS the folder of stubs, INPUTS what slime_inputs.py wrote. `ray` and `python3` are
# those of PATH. OBSERVER, if any, is a command that runs in the background from before the submission on. The name of
# this process is bash: the run scripts of slime begin by killing everything with one of five names, and so does this
# one, but only if LAUNCH_ALONE is set, which says that it runs in a PID namespace of its own.
set -u
slime=$1 stubs=$2 inputs=$3 observer=${4:-}
gpus=4 port=${LAUNCH_PORT:-6379} job_port=${LAUNCH_JOB_PORT:-8265}

if [ -n "${LAUNCH_ALONE:-}" ]; then
    pkill -9 sglang
    ray stop --force
    pkill -9 ray
    pkill -9 python
    pkill -9 slime
    pkill -9 redis
else
    ray stop --force
fi

set -e
export PYTHONUNBUFFERED=1 MASTER_ADDR=127.0.0.1
cd "$slime"
ray start --head --node-ip-address "$MASTER_ADDR" --port "$port" --num-gpus $gpus --num-cpus 16 --disable-usage-stats \
    --dashboard-host=127.0.0.1 --dashboard-port="$job_port"

environment="{\"env_vars\": {\"PYTHONPATH\": \"$stubs:$slime\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\",
  \"NCCL_NVLS_ENABLE\": \"0\", \"SLIME_HOST_IP\": \"127.0.0.1\", \"WANDB_MODE\": \"disabled\",
  \"HF_HUB_OFFLINE\": \"1\", \"OMP_NUM_THREADS\": \"1\"}}"
watcher=
if [ -n "$observer" ]; then
    $observer &
    watcher=$!
fi
set +e
start=$(date +%s%N)
ray job submit --address="http://127.0.0.1:$job_port" --runtime-env-json="$environment" -- python3 train.py \
    --actor-num-nodes 1 --actor-num-gpus-per-node $gpus --num-gpus-per-node $gpus --colocate --no-offload-train \
    --num-layers 2 --hidden-size 64 --ffn-hidden-size 192 --num-attention-heads 4 --rotary-base 10000 \
    --vocab-size 16 --hf-checkpoint "$inputs" --load "$inputs" \
    --prompt-data "$inputs/prompts.jsonl" --input-key prompt --label-key label --rollout-shuffle --rm-type f1 \
    --num-rollout 3 --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 8 \
    --rollout-temperature 1 --global-batch-size 16 --balance-data \
    --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 --use-dynamic-batch-size \
    --max-tokens-per-gpu 9216 --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7
status=$?
end=$(date +%s%N)
[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
printf 'The job ended with status %d after %d.%d s.\n' $status $(((end - start) / 1000000000)) \
    $(((end - start) / 100000000 % 10))
ray stop --force
exit $status
