package main

import (
	"fmt"
	"sort"

	"clients/checks"
)

// What kafka_exporter and Burrow ask about two groups of the topic: `live` has one member and
// committed 3 of 5, `left` has none and committed 4.
func (a asker) groupChecks(live, left string) []checks.Check {
	g := groups{a, live, left}
	return []checks.Check{
		{Name: "groups", Call: g.list},
		{Name: "groups described", Call: g.describe},
		{Name: "committed offsets", Call: g.offsets},
		{Name: "coordinator", Call: g.coordinator},
		{Name: "delete an offset", Call: g.deleteOffset},
		{Name: "delete a group", Call: g.delete},
	}
}

type groups struct {
	asker
	live, left string
}

func (g groups) list() (any, error) {
	listed, err := g.admin.ListConsumerGroups()
	return []string{listed[g.live], listed[g.left]}, err
}

func (g groups) describe() (any, error) {
	described, err := g.admin.DescribeConsumerGroups([]string{g.live, g.left})
	found := []string{}
	for _, group := range described {
		line := fmt.Sprint(group.State, " ", len(group.Members))
		for _, member := range group.Members {
			assignment, err := member.GetMemberAssignment()
			if err != nil {
				return nil, err
			}
			line += fmt.Sprint(" ", len(assignment.Topics[g.topic]))
		}
		found = append(found, line)
	}
	sort.Strings(found)
	return found, err
}

func (g groups) offsets() (any, error) {
	found := []int64{}
	for _, name := range []string{g.live, g.left} {
		all, err := g.admin.ListConsumerGroupOffsets(name, nil)
		if err != nil {
			return nil, err
		}
		asked := map[string][]int32{g.topic: {0, 1}}
		some, err := g.admin.ListConsumerGroupOffsets(name, asked)
		if err != nil {
			return nil, err
		}
		found = append(found, all.GetBlock(g.topic, 0).Offset, some.GetBlock(g.topic, 1).Offset)
	}
	return found, nil
}

func (g groups) coordinator() (any, error) {
	coordinator, err := g.client.Coordinator(g.live)
	if err != nil {
		return nil, err
	}
	return coordinator.ID() == g.client.Brokers()[0].ID(), nil
}

func (g groups) deleteOffset() (any, error) {
	if err := g.admin.DeleteConsumerGroupOffset(g.left, g.topic, 0); err != nil {
		return nil, err
	}
	left, err := g.admin.ListConsumerGroupOffsets(g.left, map[string][]int32{g.topic: {0}})
	if err != nil {
		return nil, err
	}
	return left.GetBlock(g.topic, 0).Offset, nil
}

func (g groups) delete() (any, error) {
	if err := g.admin.DeleteConsumerGroup(g.left); err != nil {
		return nil, err
	}
	listed, err := g.admin.ListConsumerGroups()
	_, has := listed[g.left]
	return has, err
}
