#!/usr/bin/env bash
# Moves the logs of a folder into its subfolder "old".
folder=$1
mkdir -p $folder/old
cd $folder
count=0
for name in $(ls *.log); do
    mv $name old/$name
    count=$((count + 1))
done
echo "$count moved"
