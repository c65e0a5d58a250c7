#!/bin/sh
for file in *.npz; do
  python infer.py --model $1 --part $2 "$file"
done
