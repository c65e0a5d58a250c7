#!/usr/bin/env bash
#SBATCH -J ds
#SBATCH -p gpu
#SBATCH --gpus=8
#SBATCH --mem-per-gpu=60G
#SBATCH --cpus-per-gpu=12
#SBATCH -t 1-12
source venv/bin/activate
deepspeed --num_gpus=8 --master_port 29600 train.py --deepspeed ds.json
